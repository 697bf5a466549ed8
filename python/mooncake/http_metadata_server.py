"""`python -m mooncake.http_metadata_server`: the command `mooncake_http_metadata_server`."""

from mooncake._launcher import mooncake_http_metadata_server as main

if __name__ == "__main__":
    main()
