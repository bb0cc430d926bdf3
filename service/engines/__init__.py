"""What runs a main network: one small protocol, one module per engine."""

import sys

# `import openvino` would load its converter, which writes an identity into the user's home and
# reports each import to its maker. Neither is wanted: a module that is None cannot be imported, and
# openvino does without both.
for _name in ("openvino_telemetry", "openvino.tools.ovc"):
    sys.modules.setdefault(_name, None)  # type: ignore[arg-type]
