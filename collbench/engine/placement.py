from dataclasses import dataclass
@dataclass(frozen=True)
class Slots:
    backend: str
    world_size: int
    gpus: tuple
    cpusets: tuple
    heading_note: str|None
