//go:build !cgo || !linux || !amd64

package main

import "time"

func shortcut() taken { return taken{began: time.Now()} }
