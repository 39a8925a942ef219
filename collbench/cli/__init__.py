"""The commands: one small file each; parse, call, print."""
