"""What every command's click context has in common."""

from collections.abc import Mapping
from typing import Any

# Each command names -h itself: click keeps a command's help option from its first use, and a
# command used by itself would keep one without -h.
CONTEXT: Mapping[str, Any] = {"help_option_names": ["-h", "--help"], "max_content_width": 120}
