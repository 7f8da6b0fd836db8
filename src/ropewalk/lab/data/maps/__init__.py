"""Images whose every pixel has a class, which maps tell.

    data = Maps(Path("voc"), size=(320, 320), patch=16, seed=0, validation=0.1, fraction=1.0, workers=4)
    for batch in data.batches("train", order, epoch=3):
        batch.images, batch.labels   # uint8 (B 3 320 320), int64 (B 320 320), 255 where nothing is known

`forms` finds the files of a folder, `pairs` reads an image and its map, `views` cuts them to size, and `sets` is the data
set of them.
"""

from ropewalk.lab.data.maps.pairs import IGNORED as IGNORED
from ropewalk.lab.data.maps.sets import Maps as Maps
