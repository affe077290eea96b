"""Images and notices as HTML, for the page; what a report consists of is in `report.markup`."""

import base64
import io

from PIL import Image

from ..report.markup import text


def picture(image: Image.Image, alt: str, kind: str = "") -> str:
    """An image inside the page itself, so that no file of it can be fetched by others."""
    content = io.BytesIO()
    image.save(content, "PNG")
    encoded = base64.b64encode(content.getvalue()).decode()
    return f'<img class="{kind}" alt="{text(alt)}" src="data:image/png;base64,{encoded}">'


def notice(message: str, kind: str = "error") -> str:
    """A box with a sentence: an `error`, or a `note`."""
    role = "alert" if kind == "error" else "status"
    return f'<div class="notice {kind}" role="{role}">{text(message)}</div>'
