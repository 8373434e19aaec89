"""Read a shop's pages as FAQ entries (files to blocks, blocks to sections, sections to entries), and sign the FAQ."""
