package main

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"cmp"
	"compress/gzip"
	"io/fs"
	"path"
	"slices"
)

// A file is one of an archive.
type file struct {
	name    string
	text    []byte
	program bool
}

func (f *file) mode() fs.FileMode {
	if f.program {
		return 0o755
	}
	return 0o644
}

// pack returns the archive of the files: sorted by name, owned by root, all of the time of
// the commit.
func (r *release) pack(files []file) ([]byte, error) {
	slices.SortFunc(files, func(a, b file) int { return cmp.Compare(a.name, b.name) })
	var b bytes.Buffer
	var err error
	if r.windows() {
		err = r.packZip(&b, files)
	} else {
		err = r.packTar(&b, files)
	}
	return b.Bytes(), err
}

func (r *release) packTar(b *bytes.Buffer, files []file) error {
	compressed := gzip.NewWriter(b)
	archive := tar.NewWriter(compressed)
	for _, f := range files {
		header := &tar.Header{
			Typeflag: tar.TypeReg, Name: path.Join(r.name(), f.name), Size: int64(len(f.text)), Mode: int64(f.mode()),
			ModTime: r.made, Uname: "root", Gname: "root", Format: tar.FormatUSTAR,
		}
		if err := archive.WriteHeader(header); err != nil {
			return err
		}
		if _, err := archive.Write(f.text); err != nil {
			return err
		}
	}
	if err := archive.Close(); err != nil {
		return err
	}
	return compressed.Close()
}

func (r *release) packZip(b *bytes.Buffer, files []file) error {
	archive := zip.NewWriter(b)
	for _, f := range files {
		header := &zip.FileHeader{Name: path.Join(r.name(), f.name), Method: zip.Deflate, Modified: r.made}
		header.SetMode(f.mode())
		w, err := archive.CreateHeader(header)
		if err != nil {
			return err
		}
		if _, err := w.Write(f.text); err != nil {
			return err
		}
	}
	return archive.Close()
}
