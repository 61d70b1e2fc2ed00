//go:build !cgo || !linux

package main

import "time"

func shortcut() taken { return taken{began: time.Now()} }
