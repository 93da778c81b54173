package identity

import (
	"fmt"
	"net"
)

// Listener wraps inner so that a connection from an address that opens them too fast is closed at once, before anything is read from it.
// limit is asked for the limits in force at each connection; a nil answer limits nobody.
func Listener(inner net.Listener, limit func() *Addresses) net.Listener {
	return &limitedListener{Listener: inner, limit: limit}
}

type limitedListener struct {
	net.Listener
	limit func() *Addresses
}

func (l *limitedListener) Accept() (net.Conn, error) {
	for {
		c, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		if _, ok := l.limit().Take(c.RemoteAddr()); ok {
			return c, nil
		}
		c.Close()
	}
}

// CheckBind refuses to serve beyond this machine without keys. flag names the setting that chose the address.
func CheckBind(addr net.Addr, keys *Keyring, flag string) error {
	if !keys.Empty() || IsLoopback(addr) {
		return nil
	}
	return fmt.Errorf("listen on %s: without auth.keys the server listens on loopback only: set auth.keys in the file, or %s to 127.0.0.1:PORT", addr, flag)
}
