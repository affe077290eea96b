"""Files that run without PyTorch: ONNX in float32 and int8, checked against the model and measured again."""

from importlib import import_module
from typing import TYPE_CHECKING, Any


# Loaded when used: a report is read without torch, and only exporting needs the extra `onnx`.
_MODULES = {
    "ExportReport": "report",
    "OnnxClassifier": "runtime",
    "export_model": "export",
}

if TYPE_CHECKING:
    from .export import export_model
    from .report import ExportReport
    from .runtime import OnnxClassifier

__all__ = ["ExportReport", "OnnxClassifier", "export_model"]


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f".{_MODULES[name]}", __name__), name)
