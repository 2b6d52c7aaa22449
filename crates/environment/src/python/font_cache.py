"""Makes matplotlib's list of fonts, so that no sandbox has to: font_cache.py SITE_PACKAGES

MPLCONFIGDIR says where the list is written. Fonts of this machine are left out, because the jail
does not show them; those that come with matplotlib are kept by relative path, so that the list
holds wherever the environment is mounted.
"""

import pathlib
import sys

sys.path.insert(0, sys.argv[1])

import matplotlib
from matplotlib import font_manager

own = pathlib.Path(matplotlib.get_data_path())
fonts = font_manager.fontManager
fonts.ttflist = [font for font in fonts.ttflist if own in pathlib.Path(font.fname).parents]
fonts.afmlist = [font for font in fonts.afmlist if own in pathlib.Path(font.fname).parents]
(cache,) = pathlib.Path(matplotlib.get_cachedir()).glob("fontlist-*.json")
font_manager.json_dump(fonts, cache)
