// SPDX-License-Identifier: GPL-2.0
/*
 * Ginnel: the shared memory of QEMU's ivshmem device for programs.
 *
 * The driver maps the device's memory into programs, rings doorbells and hands interrupts to those who wait. It is not on the way of any
 * byte: once mapped, the memory is used without it. It never believes what stands in the memory; all it reads there is whether a
 * word is zero.
 *
 * The device (QEMU, docs/specs/ivshmem-spec): BAR 0 holds registers, BAR 1 the MSI-X table, BAR 2 the memory.
 *
 * Memory type. A PCI BAR is mapped uncached by sysfs, by UIO and by VFIO, and remap_pfn_range() asks the MTRRs, where firmware marks PCI
 * space below 4 GiB uncached. Here BAR 2 is ordinary memory of the host, which is coherent, so its pages are entered into the
 * page tables with the type of ordinary memory. The entries are special ones: nothing can take a reference to what may be unplugged.
 */

#include <linux/cdev.h>
#include <linux/fs.h>
#include <linux/idr.h>
#include <linux/interrupt.h>
#include <linux/io.h>
#include <linux/list.h>
#include <linux/mm.h>
#include <linux/module.h>
#include <linux/mutex.h>
#include <linux/net.h>
#include <linux/nospec.h>
#include <linux/pci.h>
#include <linux/poll.h>
#include <linux/rwsem.h>
#include <linux/siphash.h>
#include <linux/slab.h>
#include <linux/spinlock.h>
#include <linux/tcp.h>
#include <linux/uaccess.h>
#include <linux/version.h>
#include <linux/wait.h>
#include <net/ipv6.h>
#include <net/sock.h>
#include <net/tcp_states.h>

#include "ginnel.h"

#define DRIVER			"ginnel"
#define PCI_VENDOR_QUMRANET	0x1af4
#define PCI_DEVICE_IVSHMEM	0x1110

#define BAR_REGISTERS		0
#define BAR_MEMORY		2

#define REGISTER_POSITION	8
#define REGISTER_DOORBELL	12

#define MAX_DEVICES		256
/* The specification's doorbell register has 8 bits for a vector. */
#define MAX_VECTORS		256
/* An interrupt goes through all files that watch its vector, so these are bounded. */
#define MAX_WATCHERS		4096

/* What every segment begins with, and the memory of a machine that may not join. */
static const char magic[8] = "GINNELSG";
static const char refusal[8] = "GINNELNO";

/* A device. It lives until it is unplugged and the last file on it is closed. */
struct ginnel {
	struct device dev;
	struct cdev cdev;
	struct pci_dev *pdev;
	void __iomem *registers;
	/* The driver's own view of the memory, for the words that are watched. */
	void *memory;
	phys_addr_t start;
	u64 size;
	u32 peer;
	unsigned int vectors;
	int id;

	/* Held for reading while the hardware is used and while pages are mapped; for writing to unplug. */
	struct rw_semaphore plug;
	bool gone;

	/* All open files. Taken outside of anything else. */
	struct mutex files_lock;
	struct list_head files;

	struct ginnel_vector {
		struct ginnel *g;
		/* Files that watch this vector; also taken by the interrupt. */
		spinlock_t lock;
		struct list_head watchers;
		unsigned int watching;
		char name[32];
	} vector[];
};

/* An open file: one who may wait. */
struct ginnel_file {
	struct ginnel *g;
	struct file *file;
	struct list_head node;
	wait_queue_head_t wait;
	/* How often it was woken since the last read. Changed under wait.lock. */
	u64 count;

	/* Held to change what follows, which is read under the vector's lock. */
	struct mutex lock;
	struct ginnel_vector *vector;
	struct list_head watcher;
	/* The word that must not be zero; NULL: any interrupt counts. */
	const u64 *word;
};

static DEFINE_IDA(ids);
static dev_t first_number;
static struct class *ginnel_class;

static struct ginnel *to_ginnel(struct device *dev)
{
	return container_of(dev, struct ginnel, dev);
}

/* ---- Waking ---- */

static void wake(struct ginnel_file *f)
{
	unsigned long flags;

	spin_lock_irqsave(&f->wait.lock, flags);
	f->count++;
	wake_up_locked_poll(&f->wait, EPOLLIN | EPOLLRDNORM);
	spin_unlock_irqrestore(&f->wait.lock, flags);
}

/* Wakes those who wait for this vector and whose word is not zero. Called by the interrupt, and for a doorbell of one's own. */
static void wake_watchers(struct ginnel_vector *v)
{
	struct ginnel_file *f;
	unsigned long flags;

	/* Pairs with the barrier of whoever wrote the word before it rang. */
	smp_mb();
	spin_lock_irqsave(&v->lock, flags);
	list_for_each_entry(f, &v->watchers, watcher)
		if (!f->word || READ_ONCE(*f->word))
			wake(f);
	spin_unlock_irqrestore(&v->lock, flags);
}

static irqreturn_t ginnel_interrupt(int irq, void *data)
{
	wake_watchers(data);
	return IRQ_HANDLED;
}

/* ---- Files ---- */

static int ginnel_open(struct inode *inode, struct file *file)
{
	struct ginnel *g = container_of(inode->i_cdev, struct ginnel, cdev);
	struct ginnel_file *f;

	f = kzalloc(sizeof(*f), GFP_KERNEL_ACCOUNT);
	if (!f)
		return -ENOMEM;
	f->g = g;
	f->file = file;
	init_waitqueue_head(&f->wait);
	mutex_init(&f->lock);
	INIT_LIST_HEAD(&f->watcher);
	file->private_data = f;

	mutex_lock(&g->files_lock);
	if (g->gone) {
		mutex_unlock(&g->files_lock);
		kfree(f);
		return -ENODEV;
	}
	get_device(&g->dev);
	list_add(&f->node, &g->files);
	mutex_unlock(&g->files_lock);
	/* It has no position: lseek() says ESPIPE. */
	return stream_open(inode, file);
}

static void unwatch(struct ginnel_file *f)
{
	if (!f->vector)
		return;
	spin_lock_irq(&f->vector->lock);
	list_del_init(&f->watcher);
	f->vector->watching--;
	spin_unlock_irq(&f->vector->lock);
	f->vector = NULL;
}

static int ginnel_release(struct inode *inode, struct file *file)
{
	struct ginnel_file *f = file->private_data;
	struct ginnel *g = f->g;

	mutex_lock(&g->files_lock);
	list_del(&f->node);
	mutex_unlock(&g->files_lock);
	unwatch(f);
	kfree(f);
	put_device(&g->dev);
	return 0;
}

static ssize_t ginnel_read(struct file *file, char __user *to, size_t len, loff_t *pos)
{
	struct ginnel_file *f = file->private_data;
	u64 count;
	int ret = 0;

	if (len < sizeof(count))
		return -EINVAL;

	spin_lock_irq(&f->wait.lock);
	if (!f->count && !READ_ONCE(f->g->gone)) {
		if (file->f_flags & O_NONBLOCK)
			ret = -EAGAIN;
		else
			ret = wait_event_interruptible_locked_irq(f->wait, f->count || READ_ONCE(f->g->gone));
	}
	count = f->count;
	if (!ret)
		f->count = 0;
	spin_unlock_irq(&f->wait.lock);

	if (ret)
		return ret;
	if (!count)
		return -ENODEV;
	return copy_to_user(to, &count, sizeof(count)) ? -EFAULT : sizeof(count);
}

static ssize_t ginnel_write(struct file *file, const char __user *from, size_t len, loff_t *pos)
{
	struct ginnel_file *f = file->private_data;

	if (READ_ONCE(f->g->gone))
		return -ENODEV;
	wake(f);
	return len;
}

static __poll_t ginnel_poll(struct file *file, poll_table *table)
{
	struct ginnel_file *f = file->private_data;
	__poll_t ready = 0;

	poll_wait(file, &f->wait, table);
	/* The caller looks at the memory after this; so the look at the count comes after everything that it did before. */
	smp_mb();
	if (READ_ONCE(f->count))
		ready |= EPOLLIN | EPOLLRDNORM;
	if (READ_ONCE(f->g->gone))
		ready |= EPOLLIN | EPOLLRDNORM | EPOLLHUP | EPOLLERR;
	return ready;
}

static int ginnel_watch(struct ginnel_file *f, const struct ginnel_watch *watch)
{
	struct ginnel *g = f->g;
	struct ginnel_vector *v;
	const u64 *word = NULL;
	bool room;

	if (watch->reserved)
		return -EINVAL;
	if (watch->vector >= g->vectors)
		return -EINVAL;
	if (watch->offset != GINNEL_ALWAYS) {
		if (watch->offset % sizeof(u64) || watch->offset >= g->size)
			return -EINVAL;
		word = g->memory + watch->offset;
	}

	v = &g->vector[array_index_nospec(watch->vector, g->vectors)];
	mutex_lock(&f->lock);
	unwatch(f);
	f->word = word;
	spin_lock_irq(&v->lock);
	room = v->watching < MAX_WATCHERS;
	if (room) {
		v->watching++;
		list_add(&f->watcher, &v->watchers);
	}
	spin_unlock_irq(&v->lock);
	if (room)
		f->vector = v;
	mutex_unlock(&f->lock);
	return room ? 0 : -ENOSPC;
}

static int ginnel_ring(struct ginnel *g, unsigned long bell)
{
	u32 peer = bell >> 16, vector = bell & 0xffff;

	if (bell > U32_MAX || vector >= MAX_VECTORS)
		return -EINVAL;
	if (!g->vectors)
		return -EOPNOTSUPP;
	if (peer == g->peer) {
		/* It would come back as an interrupt, by way of the host. */
		if (vector < g->vectors)
			wake_watchers(&g->vector[array_index_nospec(vector, g->vectors)]);
		return 0;
	}
	/* What the caller wrote is to be seen by whoever is rung. */
	mb();
	writel(bell, g->registers + REGISTER_DOORBELL);
	return 0;
}

/* ---- Secrets of connections ---- */

/* The second half of the hash's key: "GINPROOF". */
#define SECRET_DOMAIN 0x464f4f52504e4947ull

/* What is hashed. Claim::hashed in crates/tcp/src/proof.rs writes the same bytes. */
struct ginnel_hashed {
	__le64 nonces[2];
	u8 addresses[2][16];	/* of side 0 and side 1; IPv4 as ::ffff:a.b.c.d (RFC 4291, 2.5.5.2) */
	__le16 ports[2];
	u8 zero[12];
} __packed __aligned(8);
static_assert(sizeof(struct ginnel_hashed) == 64);

static void put_address(u8 *to, const struct sock *sk, __be32 ipv4, const struct in6_addr *ipv6)
{
	if (sk->sk_family == AF_INET6) {
		memcpy(to, ipv6, 16);
	} else {
		memset(to, 0, 10);
		memset(to + 10, 0xff, 2);
		memcpy(to + 12, &ipv4, 4);
	}
}

/* The two ends of a connection, under its lock: side 0's first. Both sequence numbers are those of the first byte. */
static void look_at_connection(struct sock *sk, const struct ginnel_secret *secret, struct ginnel_hashed *hashed,
			       siphash_key_t *key)
{
	const struct tcp_sock *tp = tcp_sk(sk);
	const struct inet_sock *inet = inet_sk(sk);
	unsigned int own = secret->side, other = 1 - own;
	const struct in6_addr *from = NULL, *to = NULL;
	u32 numbers[2];

#if IS_ENABLED(CONFIG_IPV6)
	from = &sk->sk_v6_rcv_saddr;
	to = &sk->sk_v6_daddr;
#endif
	/* Both differences stay the same for the life of a connection. A SYN counts as acknowledged. */
	numbers[own] = tp->snd_una - (u32)tp->bytes_acked + secret->connected;
	numbers[other] = tp->rcv_nxt - (u32)tp->bytes_received;
	put_address(hashed->addresses[own], sk, inet->inet_saddr, from);
	put_address(hashed->addresses[other], sk, inet->inet_daddr, to);
	hashed->ports[own] = cpu_to_le16(be16_to_cpu(inet->inet_sport));
	hashed->ports[other] = cpu_to_le16(be16_to_cpu(inet->inet_dport));
	key->key[0] = numbers[0] | (u64)numbers[1] << 32;
	key->key[1] = SECRET_DOMAIN;
}

static int ginnel_secret(struct ginnel_secret *secret)
{
	struct ginnel_hashed hashed = {};
	siphash_key_t key;
	struct socket *socket;
	struct sock *sk;
	int ret = 0;

	if (secret->side > 1 || secret->connected > 1 || secret->reserved[0] || secret->reserved[1])
		return -EINVAL;
	socket = sockfd_lookup(secret->fd, &ret);
	if (!socket)
		return ret;
	sk = socket->sk;
	if (sk->sk_type != SOCK_STREAM || sk->sk_protocol != IPPROTO_TCP ||
	    (sk->sk_family != AF_INET && !(IS_ENABLED(CONFIG_IPV6) && sk->sk_family == AF_INET6))) {
		ret = -EINVAL;
		goto put;
	}
	lock_sock(sk);
	if (1 << sk->sk_state & (TCPF_ESTABLISHED | TCPF_FIN_WAIT1 | TCPF_FIN_WAIT2 | TCPF_CLOSE_WAIT))
		look_at_connection(sk, secret, &hashed, &key);
	else
		ret = -ENOTCONN;
	release_sock(sk);
	if (ret)
		goto put;

	hashed.nonces[0] = cpu_to_le64(secret->nonces[0]);
	hashed.nonces[1] = cpu_to_le64(secret->nonces[1]);
	secret->secret = siphash(&hashed, sizeof(hashed), &key);
put:
	memzero_explicit(&key, sizeof(key));
	sockfd_put(socket);
	return ret;
}

static long ginnel_ioctl(struct file *file, unsigned int command, unsigned long argument)
{
	struct ginnel_file *f = file->private_data;
	struct ginnel *g = f->g;
	void __user *user = (void __user *)argument;
	struct ginnel_watch watch;
	struct ginnel_secret secret;
	struct ginnel_info info = {
		.version = GINNEL_VERSION,
		.flags = g->vectors ? GINNEL_DOORBELLS : 0,
		.peer = g->peer,
		.vectors = g->vectors,
		.size = g->size,
	};
	long ret;

	if (command == GINNEL_WATCH && copy_from_user(&watch, user, sizeof(watch)))
		return -EFAULT;
	/* Of the device it needs nothing; and it takes the lock of a socket, whose holder may be waiting for us in ginnel_fault(). */
	if (command == GINNEL_SECRET) {
		if (copy_from_user(&secret, user, sizeof(secret)))
			return -EFAULT;
		ret = READ_ONCE(g->gone) ? -ENODEV : ginnel_secret(&secret);
		return !ret && copy_to_user(user, &secret, sizeof(secret)) ? -EFAULT : ret;
	}

	down_read(&g->plug);
	if (g->gone) {
		ret = -ENODEV;
	} else {
		switch (command) {
		case GINNEL_INFO:
			ret = 0;
			break;
		case GINNEL_WATCH:
			ret = ginnel_watch(f, &watch);
			break;
		case GINNEL_RING:
			ret = file->f_mode & FMODE_WRITE ? ginnel_ring(g, argument) : -EBADF;
			break;
		default:
			ret = -ENOTTY;
		}
	}
	up_read(&g->plug);

	if (!ret && command == GINNEL_INFO && copy_to_user(user, &info, sizeof(info)))
		ret = -EFAULT;
	return ret;
}

/* ---- Memory ---- */

struct fill {
	struct ginnel *g;
	struct vm_area_struct *vma;
};

static int fill_one(pte_t *pte, unsigned long address, void *data)
{
	struct fill *fill = data;
	struct vm_area_struct *vma = fill->vma;
	u64 offset = ((u64)vma->vm_pgoff << PAGE_SHIFT) + (address - vma->vm_start);
	pte_t entry;

	/* Another thread was first. */
	if (!pte_none(*pte))
		return 0;
	entry = pfn_pte((fill->g->start + offset) >> PAGE_SHIFT, vma->vm_page_prot);
	entry = pte_mkspecial(pte_mkyoung(entry));
	if (vma->vm_flags & VM_WRITE)
		entry = pte_mkdirty(entry);
	set_pte_at(vma->vm_mm, address, pte, entry);
	return 0;
}

/* After the device is gone: a page of zeroes that nobody shares. */
static vm_fault_t fill_with_zeroes(struct vm_fault *vmf)
{
	struct page *page = alloc_page(GFP_HIGHUSER | __GFP_ZERO | __GFP_ACCOUNT);

	if (!page)
		return VM_FAULT_OOM;
	vmf->page = page;
	return 0;
}

static vm_fault_t ginnel_fault(struct vm_fault *vmf)
{
	struct vm_area_struct *vma = vmf->vma;
	struct ginnel_file *f = vma->vm_file->private_data;
	struct ginnel *g = f->g;
	struct fill fill = { .g = g, .vma = vma };
	unsigned long from, to;
	vm_fault_t ret;

	down_read(&g->plug);
	if (g->gone) {
		up_read(&g->plug);
		return fill_with_zeroes(vmf);
	}
	/* A whole page table at once, as far as it lies in the map, which lies in the memory: see ginnel_mmap(). */
	from = max(vmf->address & PMD_MASK, vma->vm_start);
	to = min(ALIGN(vmf->address + 1, PMD_SIZE), vma->vm_end);
	ret = apply_to_page_range(vma->vm_mm, from, to - from, fill_one, &fill) ? VM_FAULT_OOM : VM_FAULT_NOPAGE;
	up_read(&g->plug);
	return ret;
}

static const struct vm_operations_struct ginnel_vm_ops = {
	.fault = ginnel_fault,
};

static int ginnel_mmap(struct file *file, struct vm_area_struct *vma)
{
	struct ginnel_file *f = file->private_data;
	u64 pages = f->g->size >> PAGE_SHIFT;
	/* Not to be pinned, enlarged or dumped; special entries beside ordinary pages of zeroes. */
	const unsigned long flags = VM_IO | VM_MIXEDMAP | VM_DONTEXPAND | VM_DONTDUMP;

	if (READ_ONCE(f->g->gone))
		return -ENODEV;
	/* A private map would copy at the first store. (VM_SHARED is not set for a file that is open for reading only.) */
	if (!(vma->vm_flags & VM_MAYSHARE))
		return -EINVAL;
	if (vma->vm_pgoff >= pages || vma_pages(vma) > pages - vma->vm_pgoff)
		return -EINVAL;
#if LINUX_VERSION_CODE >= KERNEL_VERSION(6, 3, 0)
	vm_flags_set(vma, flags);
#else
	vma->vm_flags |= flags;
#endif
	vma->vm_ops = &ginnel_vm_ops;
	return 0;
}

static const struct file_operations ginnel_fops = {
	.owner = THIS_MODULE,
	.open = ginnel_open,
	.release = ginnel_release,
	.read = ginnel_read,
	.write = ginnel_write,
	.poll = ginnel_poll,
	.unlocked_ioctl = ginnel_ioctl,
	.compat_ioctl = compat_ptr_ioctl,
	.mmap = ginnel_mmap,
};

/* ---- What sysfs shows ---- */

static ssize_t peer_show(struct device *dev, struct device_attribute *attr, char *buf)
{
	return sysfs_emit(buf, "%u\n", to_ginnel(dev)->peer);
}
static DEVICE_ATTR_RO(peer);

static ssize_t vectors_show(struct device *dev, struct device_attribute *attr, char *buf)
{
	return sysfs_emit(buf, "%u\n", to_ginnel(dev)->vectors);
}
static DEVICE_ATTR_RO(vectors);

static ssize_t size_show(struct device *dev, struct device_attribute *attr, char *buf)
{
	return sysfs_emit(buf, "%llu\n", to_ginnel(dev)->size);
}
static DEVICE_ATTR_RO(size);

static ssize_t interface_show(struct device *dev, struct device_attribute *attr, char *buf)
{
	return sysfs_emit(buf, "%u\n", GINNEL_VERSION);
}
static DEVICE_ATTR_RO(interface);

static struct attribute *ginnel_attrs[] = {
	&dev_attr_peer.attr,
	&dev_attr_vectors.attr,
	&dev_attr_size.attr,
	&dev_attr_interface.attr,
	NULL,
};
ATTRIBUTE_GROUPS(ginnel);

/* ---- Plugging and unplugging ---- */

static void ginnel_free(struct device *dev)
{
	kfree(to_ginnel(dev));
}

/* Is there a segment in the memory? Other programs use ivshmem devices too, for things of their own. */
static int check_content(struct pci_dev *pdev, const void *memory)
{
	char word[8];

	memcpy(word, memory, sizeof(word));
	if (!memcmp(word, magic, sizeof(word)))
		return 0;
	if (!memcmp(word, refusal, sizeof(word))) {
		pci_err(pdev, "the host refuses this machine: ginneld's log there says why\n");
		return -EACCES;
	}
	pci_info(pdev, "an ivshmem device without a Ginnel segment: left alone\n");
	return -ENODEV;
}

static struct ginnel *ginnel_allocate(struct pci_dev *pdev, unsigned int vectors)
{
	struct ginnel *g;
	unsigned int i;
	int id;

	id = ida_alloc_max(&ids, MAX_DEVICES - 1, GFP_KERNEL);
	if (id < 0)
		return ERR_PTR(id);
	g = kzalloc(struct_size(g, vector, vectors), GFP_KERNEL);
	if (!g) {
		ida_free(&ids, id);
		return ERR_PTR(-ENOMEM);
	}
	g->id = id;
	g->pdev = pdev;
	g->vectors = vectors;
	init_rwsem(&g->plug);
	mutex_init(&g->files_lock);
	INIT_LIST_HEAD(&g->files);
	for (i = 0; i < vectors; i++) {
		struct ginnel_vector *v = &g->vector[i];

		v->g = g;
		spin_lock_init(&v->lock);
		INIT_LIST_HEAD(&v->watchers);
		snprintf(v->name, sizeof(v->name), DRIVER "%d-%u", id, i);
	}
	device_initialize(&g->dev);
	g->dev.class = ginnel_class;
	g->dev.parent = &pdev->dev;
	g->dev.groups = ginnel_groups;
	g->dev.devt = MKDEV(MAJOR(first_number), id);
	g->dev.release = ginnel_free;
	cdev_init(&g->cdev, &ginnel_fops);
	g->cdev.owner = THIS_MODULE;
	return g;
}

static int ginnel_probe(struct pci_dev *pdev, const struct pci_device_id *id)
{
	struct ginnel *g;
	void __iomem *registers;
	void *memory;
	u64 size = pci_resource_len(pdev, BAR_MEMORY);
	int vectors, ret;
	unsigned int i;

	ret = pcim_enable_device(pdev);
	if (ret)
		return ret;
	if (!size) {
		pci_err(pdev, "no memory: no address space was left for it (pref64-reserve of its port)\n");
		return -ENODEV;
	}
	ret = pci_request_regions(pdev, DRIVER);
	if (ret)
		return ret;

	memory = memremap(pci_resource_start(pdev, BAR_MEMORY), size, MEMREMAP_WB);
	if (!memory) {
		ret = -ENOMEM;
		goto release_regions;
	}
	ret = check_content(pdev, memory);
	if (ret)
		goto unmap_memory;
	registers = pci_iomap(pdev, BAR_REGISTERS, 0);
	if (!registers) {
		ret = -ENOMEM;
		goto unmap_memory;
	}

	/* Interrupts are messages, which the device writes itself. */
	pci_set_master(pdev);
	vectors = pci_alloc_irq_vectors(pdev, 1, MAX_VECTORS, PCI_IRQ_MSIX);
	if (vectors < 0) {
		pci_info(pdev, "no interrupts (%d): without doorbells\n", vectors);
		vectors = 0;
	}

	g = ginnel_allocate(pdev, vectors);
	if (IS_ERR(g)) {
		ret = PTR_ERR(g);
		goto free_vectors;
	}
	g->registers = registers;
	g->memory = memory;
	g->start = pci_resource_start(pdev, BAR_MEMORY);
	g->size = size;
	g->peer = readl(registers + REGISTER_POSITION);
	ret = dev_set_name(&g->dev, DRIVER "%d", g->id);
	if (ret)
		goto put;

	for (i = 0; i < g->vectors; i++) {
		ret = request_irq(pci_irq_vector(pdev, i), ginnel_interrupt, 0, g->vector[i].name, &g->vector[i]);
		if (ret)
			goto free_irqs;
	}
	pci_set_drvdata(pdev, g);
	ret = cdev_device_add(&g->cdev, &g->dev);
	if (ret)
		goto free_irqs;
	pci_info(pdev, "%s: %llu MiB, peer %u, %u vectors\n", dev_name(&g->dev), size >> 20, g->peer, g->vectors);
	return 0;

free_irqs:
	while (i--)
		free_irq(pci_irq_vector(pdev, i), &g->vector[i]);
put:
	ida_free(&ids, g->id);
	put_device(&g->dev);
free_vectors:
	pci_free_irq_vectors(pdev);
	pci_clear_master(pdev);
	pci_iounmap(pdev, registers);
unmap_memory:
	memunmap(memory);
release_regions:
	pci_release_regions(pdev);
	return ret;
}

static void ginnel_remove(struct pci_dev *pdev)
{
	struct ginnel *g = pci_get_drvdata(pdev);
	struct ginnel_file *f;
	unsigned int i;

	cdev_device_del(&g->cdev, &g->dev);
	/* Free for the device that comes next, though files may be open on this one for long: programs look for it under its old name. */
	ida_free(&ids, g->id);

	mutex_lock(&g->files_lock);
	/*
	 * From here on nobody enters a page of the device into a page table, nor touches a register. Whoever touches the memory meanwhile waits,
	 * so that no page of zeroes is taken away again.
	 */
	down_write(&g->plug);
	/* A file belongs to one node of possibly several of the device. It stays as long as anything of it is mapped. */
	list_for_each_entry(f, &g->files, node)
		unmap_mapping_range(f->file->f_mapping, 0, 0, 1);
	WRITE_ONCE(g->gone, true);
	up_write(&g->plug);
	list_for_each_entry(f, &g->files, node)
		wake_up_poll(&f->wait, EPOLLIN | EPOLLHUP | EPOLLERR);
	mutex_unlock(&g->files_lock);

	for (i = 0; i < g->vectors; i++)
		free_irq(pci_irq_vector(pdev, i), &g->vector[i]);
	pci_free_irq_vectors(pdev);
	pci_clear_master(pdev);
	pci_iounmap(pdev, g->registers);
	memunmap(g->memory);
	pci_release_regions(pdev);
	put_device(&g->dev);
}

static const struct pci_device_id ginnel_ids[] = {
	{ PCI_DEVICE(PCI_VENDOR_QUMRANET, PCI_DEVICE_IVSHMEM) },
	{ }
};
MODULE_DEVICE_TABLE(pci, ginnel_ids);

static struct pci_driver ginnel_driver = {
	.name = DRIVER,
	.id_table = ginnel_ids,
	.probe = ginnel_probe,
	.remove = ginnel_remove,
};

static int __init ginnel_init(void)
{
	int ret;

	ret = alloc_chrdev_region(&first_number, 0, MAX_DEVICES, DRIVER);
	if (ret)
		return ret;
#if LINUX_VERSION_CODE >= KERNEL_VERSION(6, 4, 0)
	ginnel_class = class_create(DRIVER);
#else
	ginnel_class = class_create(THIS_MODULE, DRIVER);
#endif
	if (IS_ERR(ginnel_class)) {
		ret = PTR_ERR(ginnel_class);
		goto unregister_numbers;
	}
	ret = pci_register_driver(&ginnel_driver);
	if (ret)
		goto destroy_class;
	return 0;

destroy_class:
	class_destroy(ginnel_class);
unregister_numbers:
	unregister_chrdev_region(first_number, MAX_DEVICES);
	return ret;
}

static void __exit ginnel_exit(void)
{
	pci_unregister_driver(&ginnel_driver);
	class_destroy(ginnel_class);
	unregister_chrdev_region(first_number, MAX_DEVICES);
	ida_destroy(&ids);
}

module_init(ginnel_init);
module_exit(ginnel_exit);

MODULE_DESCRIPTION("Ginnel: shared memory between virtual machines for programs");
MODULE_LICENSE("GPL");
MODULE_VERSION("0.1.0");
