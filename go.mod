module shaper

go 1.26
