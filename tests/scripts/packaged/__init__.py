"""A training job as a package: it runs by ``python -m packaged`` from the folder above."""
