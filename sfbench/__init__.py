"""sfbench: did adding devices make training faster, and if not, what ate it?"""

__version__ = "0.1.0"
