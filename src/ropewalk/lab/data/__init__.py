"""Images and labels to train on and to judge by.

    data = load("cifar100", root="data", seed=0, validation=0.1, fraction=0.5)
    order = epoch_order(data.counts["train"], 1024, seed=0, epoch=3)
    for batch in data.batches("train", order, epoch=3):
        batch.images, batch.labels, batch.index

`load` finds a set by name, a `.npz` file or a folder of images or videos, `Data` is what all of them are, and `epoch_order`
and `in_order` say which samples come when. Everything random follows from the seed, the epoch and the number of a sample:
the same batches come from any number of processes and workers, and after any interruption. The test set is not read before
its batches are asked for.
"""
