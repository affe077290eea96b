"""Files that run without PyTorch: ONNX in float32 and int8, checked against the model and measured again."""

from typing import TYPE_CHECKING

from ..lazy_imports import lazy_getattr


# Loaded when used: a report is read without torch, and only exporting needs the extra `onnx`.
_MODULES = {
    "ExportReport": ".report",
    "OnnxClassifier": ".runtime",
    "export_model": ".export",
}

if TYPE_CHECKING:
    from .export import export_model
    from .report import ExportReport
    from .runtime import OnnxClassifier

__all__ = ["ExportReport", "OnnxClassifier", "export_model"]

__getattr__ = lazy_getattr(__name__, _MODULES)
