class GpuWatch:
    def __init__(self, indices=()): pass
    def read(self): return {}
    def difference(self, a, b): return []
