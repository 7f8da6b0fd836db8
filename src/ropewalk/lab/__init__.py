"""The lab: what is drawn, measured and trained with the library; it needs the extra `lab`."""
