"""Hardware and a cluster that need none: the whole product on a laptop, imported only where asked for."""
