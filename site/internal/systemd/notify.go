// Package systemd tells systemd about the daemon. Without systemd it does nothing, and that it fails changes nothing.
package systemd

import "github.com/coreos/go-systemd/v22/daemon"

// Ready says that the daemon serves.
func Ready() { daemon.SdNotify(false, daemon.SdNotifyReady) }

// Stopping says that the daemon ends.
func Stopping() { daemon.SdNotify(false, daemon.SdNotifyStopping) }

// Status says what the daemon does, for people.
func Status(text string) { daemon.SdNotify(false, "STATUS="+text) }

// Reloading says that the configuration is being read, until the function it returns is called.
func Reloading() (done func()) {
	daemon.SdNotify(false, daemon.SdNotifyReloading+"\n"+daemon.SdNotifyMonotonicUsec())
	return Ready
}
