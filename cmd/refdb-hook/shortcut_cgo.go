//go:build cgo && linux && amd64

package main

// #cgo CFLAGS: -fno-builtin-memcpy -fno-builtin-memset -fno-builtin-strlen -fno-stack-protector
// #cgo LDFLAGS: -Wl,-e,shortcut
// #include "shortcut.h"
import "C"

import (
	"time"
	"unsafe"
)

func shortcut() taken {
	s := C.shortcut_taken()
	t := taken{
		began: time.Now().Add(-time.Duration(s.took_ns)),
		stdin: unsafe.Slice((*byte)(unsafe.Pointer(s.stdin_text)), s.stdin_len),
	}
	if s.answer != nil {
		t.answer = unsafe.Slice((*byte)(unsafe.Pointer(s.answer)), s.answer_len)
	}
	return t
}
