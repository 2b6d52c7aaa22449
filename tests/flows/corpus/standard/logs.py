import logging
import logging.handlers
import sys
import warnings

logging.warning("root %s", "warns")
logging.getLogger("quiet").debug("unseen")
logger = logging.getLogger("named")
handler = logging.StreamHandler(sys.stdout)
handler.setFormatter(logging.Formatter("%(levelname)s %(name)s %(funcName)s %(message)s"))
logger.addHandler(handler)
logger.propagate = False
logger.error("to stdout")
try:
    1 / 0
except ZeroDivisionError:
    logger.error("with type %s", sys.exc_info()[0].__name__)
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    warnings.warn("careful", DeprecationWarning)
print([str(w.message) for w in caught])
