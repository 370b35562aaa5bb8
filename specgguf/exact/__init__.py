"""Which batch widths give equal bits, and what else was measured of this machine."""
