"""Benchmarks of encodings beside a lower bound and beside other libraries. Operations with wrong outputs get no figures."""
