"""The public list: a folder of signed archives becomes a static site with dated editions."""
