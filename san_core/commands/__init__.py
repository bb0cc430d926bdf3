"""Commands of the library: `san describe | classify | export | import-official`."""
