"""Asked for its own help, which exits before anything is imported."""

# args: --help
# run: status=healthy steps=0
# when: thorough
# exit: 0

import argparse


def parse():
    parser = argparse.ArgumentParser(epilog="That is all.")
    parser.add_argument("--lr", type=float, default=0.1, help="step size (default: %(default)s)")
    parser.add_argument("--level", help="how hard the task is")
    return parser.parse_args()


def main(args):
    import torch

    print(torch.tensor(args.lr))


if __name__ == "__main__":
    main(parse())
