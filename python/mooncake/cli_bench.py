"""`python -m mooncake.cli_bench`: the command `transfer_engine_bench`."""

from mooncake._launcher import transfer_engine_bench as main

if __name__ == "__main__":
    main()
