"""`python -m mooncake.transfer_engine_topology_dump`: the command `transfer_engine_topology_dump`."""

from mooncake._launcher import transfer_engine_topology_dump as main

if __name__ == "__main__":
    main()
