# shape: exits at once, with the code it was given
import argparse
import sys

parser = argparse.ArgumentParser()
parser.add_argument("--code", type=int, default=0)
code = parser.parse_args().code
if code:
    print("nothing to train on: no data folder", file=sys.stderr)
sys.exit(code)
