"""Wolf Pack: elastic worker pools on Ray."""
