"""Figures of reports, rankings and scaling: each is drawn once and saved as SVG and PNG."""
