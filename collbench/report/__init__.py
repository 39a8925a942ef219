"""What people see: headings, tables, plots."""
