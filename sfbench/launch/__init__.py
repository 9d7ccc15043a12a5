"""Launch: start all ranks of a point, watch over them, end them, keep their logs."""
