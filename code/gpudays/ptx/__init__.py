"""The tracer: parse PTX, execute it warp by warp, account for every access, check what a GPU would not tell."""
