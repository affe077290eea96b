"""Shared by the tests of this room."""

from collections.abc import Iterator

import pytest
from transformers.utils import logging


@pytest.fixture
def warnings(caplog: pytest.LogCaptureFixture) -> Iterator[pytest.LogCaptureFixture]:
    """What the library logs, which transformers' logger keeps from pytest otherwise."""
    logging.enable_propagation()
    yield caplog
    logging.disable_propagation()
