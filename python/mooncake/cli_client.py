"""`python -m mooncake.cli_client`: the command `mooncake_client`."""

from mooncake._launcher import mooncake_client as main

if __name__ == "__main__":
    main()
