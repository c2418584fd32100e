package redisstore

import (
	"crypto/sha1" //nolint:gosec // Redis names scripts by it
	"embed"
	"encoding/hex"
)

//go:embed lua
var sources embed.FS

// script is one step. It is sent by its hash, and whole if the server does not know it.
type script struct{ source, hash string }

var (
	createScript = newScript("create")
	swapScript   = newScript("swap")
	loadScript   = newScript("load")
	forgetScript = newScript("forget")
	indexScript  = newScript("index")

	noteScript   = newScript("note")
	gateScript   = newScript("gate")
	takeScript   = newScript("take")
	importScript = newScript("import")

	takeoverScript = &script{read("takeover"), hashOf(read("takeover"))} // it does not begin as the others do
)

func newScript(name string) *script {
	source := read("begin") + read(name)
	return &script{source, hashOf(source)}
}

func hashOf(source string) string {
	sum := sha1.Sum([]byte(source)) //nolint:gosec // see the import
	return hex.EncodeToString(sum[:])
}

func read(name string) string {
	b, err := sources.ReadFile("lua/" + name + ".lua")
	if err != nil {
		return "" // it is embedded; every test would fail
	}
	return string(b)
}
