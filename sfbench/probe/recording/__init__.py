"""Small hooks that note what the correctness checks need to know. They judge nothing."""
