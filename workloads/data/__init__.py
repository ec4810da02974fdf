"""Scientific data: real file formats, generated samples of the same schema, and descriptions."""
