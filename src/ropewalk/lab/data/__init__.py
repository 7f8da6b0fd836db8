"""Datasets for training and evaluation.

    data = open_dataset("cifar100", root="data", seed=0, validation=0.1, fraction=0.5)
    order = epoch_order(data.counts["train"], 1024, seed=0, epoch=3)
    for batch in data.batches("train", order, epoch=3):
        batch.images, batch.labels, batch.index

`open_dataset` (dataset_registry.py) finds a dataset by name, a `.npz` file or a folder of images or videos. `ImageData`
(base.py) is the class of all of them. `epoch_order` and `sequential_order` (sampling.py) give the order of samples. All
randomness follows from the seed, the epoch and the index of a sample: batches do not depend on the number of processes and
workers, and are the same after an interruption. The test set is not read before its batches are requested.
"""
