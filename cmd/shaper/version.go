package main

import "runtime"

// version is that of a release: the linker sets it (-X main.version=1.2.3).
var version = "0.1.0-dev"

type versionReading struct {
	Version  string `json:"version"`
	Go       string `json:"go"`
	Platform string `json:"platform"`
}

func buildVersion() versionReading {
	return versionReading{version, runtime.Version(), runtime.GOOS + "/" + runtime.GOARCH}
}
