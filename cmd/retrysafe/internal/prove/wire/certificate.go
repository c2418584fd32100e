package wire

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"time"
)

// A certificate is a self-signed one for this machine and one check.
type certificate struct {
	pair              tls.Certificate
	pool              *x509.CertPool
	certFile, keyFile string
}

// certify makes a certificate, and writes it where a gateway can read it.
func certify(dir string) (*certificate, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	now := time.Now()
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), NotBefore: now.Add(-time.Hour), NotAfter: now.Add(24 * time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, IsCA: true, BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return nil, err
	}
	secret, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, err
	}
	c := &certificate{certFile: filepath.Join(dir, "wire.crt"), keyFile: filepath.Join(dir, "wire.key"), pool: x509.NewCertPool()}
	certPEM := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	keyPEM := pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: secret})
	c.pool.AppendCertsFromPEM(certPEM)
	if c.pair, err = tls.X509KeyPair(certPEM, keyPEM); err != nil {
		return nil, err
	}
	if err := os.WriteFile(c.certFile, certPEM, 0o600); err != nil {
		return nil, err
	}
	return c, os.WriteFile(c.keyFile, keyPEM, 0o600)
}

// server is how a listener shows it, for this protocol.
func (c *certificate) server(protocol string) *tls.Config {
	return &tls.Config{Certificates: []tls.Certificate{c.pair}, NextProtos: []string{protocol}, MinVersion: tls.VersionTLS12}
}

// client is how it is believed, for this protocol.
func (c *certificate) client(protocol string) *tls.Config {
	return &tls.Config{RootCAs: c.pool, NextProtos: []string{protocol}, ServerName: "127.0.0.1", MinVersion: tls.VersionTLS12}
}
