"""`python -m mooncake.cli`: the command `mooncake_master`."""

from mooncake._launcher import mooncake_master as main

if __name__ == "__main__":
    main()
