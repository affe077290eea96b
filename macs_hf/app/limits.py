"""How much visitors may ask for."""

MAX_UPLOAD_BYTES = 500_000_000  # of any file
MAX_IMAGE_BYTES = 30_000_000
MAX_IMAGE_PIXELS = 50_000_000
MAX_ARCHIVE_IMAGES = 50_000
MAX_ARCHIVE_BYTES = 2_000_000_000  # unpacked

MAX_AUDITED_IMAGES = 50_000
MAX_COMPARED_RUNS = 6

AUDITS_AT_ONCE = 1  # the others wait
ANSWERS_AT_ONCE = 2
QUEUE_SIZE = 20  # events that wait; further ones are refused
VISITORS = 200  # whose state is kept; that of the one who came first is dropped for another
KEPT_RUNS = 10  # audits of a visitor, for comparisons
KEPT_MODELS = 2  # in memory, for all visitors together
KEPT_SECONDS = 3600  # files that visitors uploaded or downloaded
