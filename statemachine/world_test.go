package statemachine

// testBoot is a kernel that tests run on.
var testBoot = Boot{0x7b, 0x1c, 0x0e, 0x52, 0x9a, 0x31, 0x4f, 0x60, 0x8d, 0x2e, 0x11, 0xaa, 0x5c, 0x03, 0xf4, 0x97}

// fold derives a registry from stored records alone.
func fold(payloads [][]byte) (*Registry, error) {
	r := NewRegistry()
	return r, foldMore(r, payloads)
}

// foldMore goes on where r is.
func foldMore(r *Registry, payloads [][]byte) error {
	var dec Decoder
	for _, p := range payloads {
		rec, err := dec.Decode(r.Seq()+1, p)
		if err != nil {
			return err
		}
		if err := r.Apply(&rec); err != nil {
			return err
		}
	}
	return nil
}
