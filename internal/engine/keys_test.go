package engine

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"testing"
)

// TestSumIsHMAC compares the signature with crypto/hmac, around every block edge and above the room on the stack.
func TestSumIsHMAC(t *testing.T) {
	t.Parallel()
	key := NewKey(7)
	k := &newSigner(TokenKeys{Current: key}).keys[0]
	for n := range 700 {
		text := bytes.Repeat([]byte{byte(n)}, n)
		want := hmac.New(sha256.New, key.Secret[:])
		want.Write(text)
		if got := k.sum(text); !hmac.Equal(got[:], want.Sum(nil)) {
			t.Fatalf("%d bytes: %x", n, got)
		}
	}
}
