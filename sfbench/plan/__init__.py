"""Plan: options and ``[tool.sfbench]`` settings become a frozen SweepPlan, and that launches."""
